"""Tool calls and thoughts by family: recorded answers, the templates that TRL ships, vLLM's parsers."""

import json
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from chat_tokenizers import LLAMA, byte_level

from rl_agents.chat.template import ChatOptions, ChatTemplate
from rl_agents.chat.tool_parsing import FAMILIES, REASONING, make_parser
from rl_agents.errors import InputError
from rl_agents.tools.calls import ToolCall, read_response, read_tools

TOOLS = read_tools(
    [
        {
            "name": "look_up",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "days": {"type": "integer"},
                    "deep": {"type": "boolean"},
                    "tags": {"type": "array"},
                },
            },
        },
        {"name": "now"},
    ]
)
ARGUMENTS = {"city": "New York", "days": 3, "deep": True, "tags": ["a", "b"]}
CALL = ToolCall("look_up", ARGUMENTS)
JSON = json.dumps(ARGUMENTS)
#: Answers as models of each family write them: thoughts, words, and the call above.
RECORDED = {
    "hermes": "<think>\nLet me see.\n</think>\n\nI look.\n<tool_call>\n"
    f'{{"name": "look_up", "arguments": {JSON}}}\n</tool_call>',
    "qwen3_coder": "<think>\nLet me see.\n</think>\n\nI look.\n\n<tool_call>\n<function=look_up>\n<parameter=city>\n"
    "New York\n</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=deep>\nTrue\n</parameter>\n"
    '<parameter=tags>\n["a", "b"]\n</parameter>\n</function>\n</tool_call>',
    "glm45": "<think>Let me see.</think>\nI look.\n<tool_call>look_up\n<arg_key>city</arg_key>\n"
    "<arg_value>New York</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n<arg_key>deep</arg_key>\n"
    '<arg_value>true</arg_value>\n<arg_key>tags</arg_key>\n<arg_value>["a", "b"]</arg_value>\n</tool_call>',
    "llama3_json": f'<|python_tag|>{{"name": "look_up", "parameters": {JSON}}}',
    "mistral": "[THINK]Let me see.[/THINK]I look."
    f'[TOOL_CALLS][{{"name": "look_up", "arguments": {JSON}, "id": "a1b2c3d4e"}}]',
    "deepseek_v3": "<think>\nLet me see.\n</think>\nI look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function"
    f"<｜tool▁sep｜>look_up\n```json\n{JSON}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek_v31": "<think>Let me see.</think>I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>look_up<｜tool▁sep｜>"
    f"{JSON}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "gemma4": "<|channel>thought\nLet me see.<channel|>I look.<|tool_call>call:look_up{city:<|\"|>New York<|\"|>,"
    "days:3,deep:true,tags:[<|\"|>a<|\"|>,<|\"|>b<|\"|>]}<tool_call|>",
    "openai": "<|channel|>analysis<|message|>Let me see.<|end|><|start|>assistant<|channel|>commentary<|message|>"
    "I look.<|end|><|start|>assistant<|channel|>commentary to=functions.look_up <|constrain|>json<|message|>"
    f"{JSON}<|call|>",
}  # fmt: skip
THOUGHTS = {"mistral": "mistral", "gemma4": "gemma4", "openai": "openai_gptoss"}


def parser(family, thoughts="", template=LLAMA, special=("<|eot_id|>",)):
    tokenizer = byte_level(list(special), special[0], template)
    return make_parser(tokenizer, lambda arguments, name: "", family, thoughts or THOUGHTS.get(family, ""))


def test_mistrals_newer_models_name_the_tool_before_its_arguments():
    for between in ("[ARGS]", "[CALL_ID]a1b2c3d4e[ARGS]", ""):
        said = parser("mistral").read(f"I look.[TOOL_CALLS]look_up{between}{JSON}[TOOL_CALLS]now[ARGS]{{}}", TOOLS)
        assert (said.content, said.calls) == ("I look.", (CALL, ToolCall("now", {})))


@pytest.mark.parametrize("family", FAMILIES)
def test_recorded_answers_are_read_and_environments_read_one_form_of_all(family):
    read = parser(family)
    said, shown = read.read(RECORDED[family], TOOLS), read_response(read.action(RECORDED[family], TOOLS))
    assert (said.calls, said.problem) == (shown.calls, shown.problem) == ((CALL,), "")
    if family != "llama3_json":  # a call and nothing else
        assert (said.thoughts.strip(), said.content) == ("Let me see.", "I look.")
    assert shown.thoughts.strip() == said.thoughts.strip()


@pytest.mark.parametrize("family", FAMILIES)
def test_words_alone_are_words(family):
    text = "<|channel|>final<|message|>It rains.<|return|>" if family == "openai" else "It rains."
    said = parser(family).read(text, TOOLS)
    assert (said.content, said.calls, said.problem) == ("It rains.", (), "")
    assert parser(family).action(text, TOOLS) == "It rains."


BROKEN = {
    "hermes": '<tool_call>\n{"name": "look_up", "arguments": {"city": }\n</tool_call>',
    "qwen3_coder": "<tool_call>\n<function=look_up>\n<parameter=city>\nBern\n</function>\n</tool_call>",
    "glm45": "<tool_call>look_up\n<arg_key>city</arg_key>\n</tool_call>",
    "mistral": '[TOOL_CALLS][{"name": "look_up", "arguments": {"city": ]',
    "deepseek_v3": "<｜tool▁call▁begin｜>function<｜tool▁sep｜>look_up\n```json\n{\"city\"\n```<｜tool▁call▁end｜>",
    "deepseek_v31": '<｜tool▁call▁begin｜>look_up<｜tool▁sep｜>{"city": <｜tool▁call▁end｜>',
    "gemma4": '<|tool_call>call:look_up{city:<|"|>New York}<tool_call|>',
    "openai": '<|channel|>commentary to=functions.look_up<|message|>{"city": <|call|>',
}  # fmt: skip


@pytest.mark.parametrize("family", BROKEN)
def test_a_broken_call_is_said_to_be_one_to_reader_and_environment(family):
    said = parser(family).read(BROKEN[family], TOOLS)
    assert said.problem and not said.calls
    assert read_response(parser(family).action(BROKEN[family], TOOLS)).problem


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "openai"])
@pytest.mark.parametrize("tag", ["</tool_call>", "</think>", "<tool_call>", "<think>", "[TOOL_CALLS]"])
def test_tags_inside_of_an_argument_are_its_text(family, tag):
    text = RECORDED[family].replace("New York", f"x {tag} y")
    if (family, tag) == ("mistral", "</think>"):
        text = text.replace("[THINK]Let me see.[/THINK]", "")
    said = parser(family).read(text, TOOLS)
    assert [call.arguments["city"] for call in said.calls] == [f"x {tag} y"], said


def test_only_offered_names_are_calls_without_marks():
    bob = '{"name": "Bob", "parameters": {"age": 3}}'
    for family in ("hermes", "llama3_json"):
        said = parser(family).read(bob, TOOLS)
        assert (said.content, said.calls, said.problem) == (bob, (), "")
        assert parser(family).read(bob.replace("Bob", "now"), TOOLS).calls == (ToolCall("now", {"age": 3}),)
    several = '{"name": "now", "parameters": {}}; {"name": "look_up", "parameters": {"city": "Bern"}}'
    assert [call.name for call in parser("llama3_json").read(several, TOOLS).calls] == ["now", "look_up"]


def test_a_call_may_have_no_arguments():
    for family, text in {
        "hermes": '<tool_call>{"name": "now"}</tool_call>',
        "qwen3_coder": "<tool_call>\n<function=now>\n</function>\n</tool_call>",
        "glm45": "<tool_call>now\n</tool_call>",
        "mistral": '[TOOL_CALLS][{"name": "now"}]',
        "gemma4": "<|tool_call>call:now{}<tool_call|>",
    }.items():
        assert parser(family).read(text, TOOLS).calls == (ToolCall("now", {}),), family


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "3", "3"),
        ({"type": "integer"}, "3", 3),
        ({"type": "number"}, "3.5", 3.5),
        ({"type": "boolean"}, "False", False),
        ({"type": ["string", "null"]}, "None", None),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", None),
        ({"type": "object"}, '{"a": [1]}', {"a": [1]}),
        ({"type": "integer"}, "three", "three"),
        ({}, "7", 7),
        ({"enum": ["1", "2"]}, "1", "1"),
    ],
)
def test_parameters_that_are_text_get_the_types_of_their_schema(schema, text, value):
    tools = read_tools([{"name": "f", "parameters": {"type": "object", "properties": {"a": schema}}}])
    call = f"<tool_call>\n<function=f>\n<parameter=a>\n{text}\n</parameter>\n</function>\n</tool_call>"
    assert parser("qwen3_coder").read(call, tools).calls == (ToolCall("f", {"a": value}),)


# --- the templates that model makers publish, as TRL ships them

SHIPPED = Path(str(find_spec("trl").origin)).parent / "chat_templates"  # type: ignore[union-attr]
#: The template's file -> family and reasoning parser; None: no parser reads its calls, which is reported.
TEMPLATES = {
    "qwen2_5": "hermes", "qwen3": "hermes", "qwen3_instruct_2507": "hermes", "qwen3_5_think": "qwen3_coder",
    "qwen3_6": "qwen3_coder", "qwen3_8": "qwen3_coder", "nemotron_3_nano": "qwen3_coder", "glm4moe": "glm45",
    "llama3_1": "llama3_json", "llama3_2": "llama3_json", "deepseekv3": "deepseek_v3", "gemma4": "gemma4",
    "gemma4_v5": "gemma4", "gptoss": "openai", "lfm2_2_5": "", "muse_glimmer": "",
}  # fmt: skip
EOS = {"gptoss": "<|return|>", "glm4moe": "<|endoftext|>", "deepseekv3": "<｜end▁of▁sentence｜>",
       "muse_glimmer": "<|eot|>", "llama3_1": "<|eot_id|>", "llama3_2": "<|eot_id|>", "gemma4": "<turn|>",
       "gemma4_v5": "<turn|>"}  # fmt: skip
MARKS = re.compile(r"<\|[a-zA-Z_]+\|>|<｜[^｜]+｜>|<\|\w+>|<\w+\|>|<\|\"\|>")


@cache
def shipped(name):
    text = (SHIPPED / f"{name}.jinja").read_text(encoding="utf-8")
    eos = EOS.get(name, "<|im_end|>")
    return ChatTemplate(byte_level(list(dict.fromkeys([*sorted(set(MARKS.findall(text))), eos])), eos, text))


@pytest.mark.parametrize(("name", "family"), TEMPLATES.items())
def test_the_family_is_found_from_the_template(name, family):
    assert shipped(name).parser.tool_parser == family


@pytest.mark.parametrize("name", [name for name, family in TEMPLATES.items() if family])
def test_what_a_template_writes_is_read_back_from_its_tokens(name):
    template = shipped(name)
    ids = template._encode(template._render_call(ARGUMENTS, "look_up"))
    if TEMPLATES[name] == "llama3_json":  # without the role, which is not sampled
        ids = ids[next(i for i in range(len(ids)) if template.decode(ids[i:])[0] == "{") :]
    said = template.parser.read(template.decode(ids), TOOLS)
    assert said.calls == (CALL,) and not said.problem
    assert read_response(template.action(ids)).calls[0].name == "look_up"


def test_a_model_whose_calls_no_parser_reads_is_refused_with_the_names():
    with pytest.raises(InputError, match="no parser reads the tool calls") as refused:
        shipped("lfm2_2_5").chat_ids([{"role": "user", "content": "hi"}], [tool.to_openai() for tool in TOOLS])
    assert all(family in str(refused.value) for family in FAMILIES)
    assert shipped("lfm2_2_5").chat_ids([{"role": "user", "content": "hi"}])  # without tools it plays
    named = ChatTemplate(shipped("lfm2_2_5").tokenizer, ChatOptions(tool_parser="hermes"))
    assert named.chat_ids([{"role": "user", "content": "hi"}], [tool.to_openai() for tool in TOOLS])


def test_the_response_template_of_a_tokenizer_goes_first():
    tokenizer = byte_level(["<|im_end|>"], "<|im_end|>", (SHIPPED / "qwen3.jinja").read_text(encoding="utf-8"))
    tokenizer.response_template = {
        "defaults": {"role": "assistant"},
        "start_anchor": "<|im_start|>assistant\n",
        "fields": {
            "reasoning_content": {"open": "<think>", "close": "</think>"},
            "tool_calls": {
                "open": "<<", "close": ">>", "repeats": True, "content": "json",
                "transform": {"type": "function", "function": "{content}"},
            },
            "content": {},
        },
    }  # fmt: skip
    found = ChatTemplate(tokenizer).parser
    said = found.read(f'<think>Let me see.</think> I look. <<{{"name": "look_up", "arguments": {JSON}}}>>', TOOLS)
    assert (said.thoughts, said.content, said.calls) == ("Let me see.", "I look.", (CALL,))
    assert found.read("<<{>>", TOOLS).problem
    assert ChatTemplate(tokenizer, ChatOptions(tool_parser="hermes")).parser.tool_parser == "hermes"


def test_marks_that_are_special_tokens_are_read_and_others_dropped():
    special = ["<|im_end|>", "<|im_start|>", "<tool_call>", "</tool_call>", "<think>", "</think>"]
    template = ChatTemplate(byte_level(special, "<|im_end|>", (SHIPPED / "qwen3.jinja").read_text(encoding="utf-8")))
    text = '<think>a</think>b<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    ids = template.answer_ids(text)
    assert ids[0] == template.tokenizer.convert_tokens_to_ids("<think>")
    assert template.decode([*ids, template.tokenizer.convert_tokens_to_ids("<|im_start|>")]) == text
    assert template.parser.read(template.decode(ids), None).calls == (ToolCall("now", {}),)


# --- vLLM's parsers by name


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
def test_vllms_parsers_read_by_name_and_agree_with_ours():
    special = ["<|im_end|>", "<|python_tag|>", "<tool_call>", "</tool_call>", "<think>", "</think>"]
    xlam = parser("xlam").read(f'[{{"name": "look_up", "arguments": {JSON}}}]', TOOLS)
    assert xlam.calls == (CALL,)
    olmo = parser("olmo3").read("<function_calls>look_up(city='Bern')</function_calls>", TOOLS)
    assert olmo.calls == (ToolCall("look_up", {"city": "Bern"}),)
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.tool_parsers import ToolParserManager

    tokenizer = byte_level(special, "<|im_end|>", LLAMA)
    request = ChatCompletionRequest(messages=[], tools=[tool.to_openai() for tool in TOOLS])
    for family in ("hermes", "qwen3_coder", "llama3_json"):
        text = RECORDED[family].rpartition("</think>")[2]
        theirs = ToolParserManager.get_tool_parser(family)(tokenizer, request.tools).extract_tool_calls(text, request)
        assert [json.loads(call.function.arguments) for call in theirs.tool_calls] == [ARGUMENTS], family
    with pytest.raises(InputError, match=r"no such parser; valid: .*hermes.*xlam"):
        parser("qwen9")
    with pytest.raises(InputError, match="tool_parser=jamba: vLLM's parser does not take this tokenizer"):
        parser("jamba")
    with pytest.raises(InputError, match="reasoning_parser=dreams: no such parser; valid: think"):
        parser("hermes", "dreams")
    with pytest.raises(InputError, match="reasoning_parser=step3: vLLM's parser does not take this tokenizer"):
        parser("hermes", "step3")
    for malformed in ("<|action_start|><|plugin|>[add(a=", '<|action_start|><|plugin|>{"name": 3}'):
        assert parser("internlm").read(malformed, TOOLS).problem  # vLLM's parser raises errors of several types


def test_names_of_reasoning_parsers():
    for name, (opening, closing) in REASONING.items():
        text = f"{opening}a{closing}b" if name != "openai_gptoss" else "<|channel|>analysis<|message|>a<|end|>b"
        assert parser("hermes", name).read(text, None).thoughts == "a"
