"""Requests in three dialects become the same call; what cannot be served is refused by name."""

import copy
from types import ModuleType
from typing import Any

import pytest

from rl_agents.gateway.calls import ToolForm
from rl_agents.gateway.dialects import chat_completions, error_body, messages, responses
from rl_agents.tools.calls import Tool
from rl_agents.web.errors import ApiError

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
ADD = Tool("add", "Adds.", SCHEMA)
BRIEF = "Be\nbrief."
ASKED = {"role": "user", "content": "2 + 3?"}
CALLED = {
    "role": "assistant", "content": "Let me see.", "reasoning_content": "Small.",
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"a": 2}}},
        {"id": "c2", "type": "function", "function": {"name": "add", "arguments": {}}},
    ],
}  # fmt: skip
RESULTS = [
    {"role": "tool", "content": text, "tool_call_id": name} for text, name in (("5", "c1"), ("Error: no a", "c2"))
]
HISTORY = ({"role": "system", "content": BRIEF}, ASKED, CALLED, *RESULTS, {"role": "user", "content": "Well?"})

CHAT: dict[str, Any] = {
    "model": "m", "max_completion_tokens": 9, "stream": True, "stop": "END", "temperature": 0.2, "seed": 4,
    "color": "red",
    "messages": [
        {"role": "developer", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}]},
        {"role": "user", "content": "2 + 3?", "name": "ann"},
        {
            "role": "assistant", "content": [{"type": "text", "text": "Let me see."}], "reasoning_content": "Small.",
            "refusal": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}},
                {"id": "c2", "type": "function", "function": {"name": "add", "arguments": ""}},
            ],
        },
        {"role": "tool", "content": [{"type": "text", "text": "5"}], "tool_call_id": "c1"},
        {"role": "tool", "content": "Error: no a", "tool_call_id": "c2"},
        {"role": "user", "content": "Well?"},
    ],
    "tools": [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": SCHEMA}}],
}  # fmt: skip
WORDS = [{"type": "output_text", "text": "Let me see.", "annotations": []}]
RESPONSES: dict[str, Any] = {
    "model": "m", "instructions": BRIEF, "max_output_tokens": 9, "stream": True, "temperature": 0.2, "color": "red",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "2 + 3?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Small."}], "phase": "x"},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": WORDS},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "add", "arguments": '{"a": 2}'},
        {"type": "function_call", "id": "fc_2", "call_id": "c2", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "5"}]},
        {"type": "function_call_output", "call_id": "c2", "output": "Error: no a"},
        {"type": "message", "role": "user", "content": "Well?"},
    ],
    "tools": [{"type": "function", "name": "add", "description": "Adds.", "parameters": SCHEMA, "strict": True}],
    "text": {"format": {"type": "json_object"}, "verbosity": "low"}, "store": False, "metadata": {"who": "me"},
    "prompt_cache_key": "k",
}  # fmt: skip
FAILED = [{"type": "text", "text": "no a"}]
MESSAGES: dict[str, Any] = {
    "model": "m", "max_tokens": 9, "stop_sequences": ["END"], "stream": True, "temperature": 0.2, "top_k": 3,
    "metadata": {"user_id": "u"}, "thinking": {"type": "enabled", "budget_tokens": 5}, "color": "red",
    "system": [{"type": "text", "text": BRIEF, "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": "2 + 3?"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Small.", "signature": "s"},
            {"type": "redacted_thinking", "data": "xx"},
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 2}},
            {"type": "tool_use", "id": "c2", "name": "add", "input": {}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": "5"},
            {"type": "tool_result", "tool_use_id": "c2", "is_error": True, "content": FAILED},
            {"type": "text", "text": "Well?"},
        ]},
    ],
    "tools": [{"name": "add", "description": "Adds.", "input_schema": SCHEMA}],
}  # fmt: skip
FULL = [(chat_completions, CHAT), (responses, RESPONSES), (messages, MESSAGES)]


def changed(body: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**copy.deepcopy(body), **fields}


def said(*items: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(items), "input": list(items), "max_tokens": 9}


@pytest.mark.parametrize(("dialect", "body"), FULL)
def test_three_dialects_tell_the_same_history(dialect: ModuleType, body: dict[str, Any]) -> None:
    call = dialect.read(body)
    assert call.messages == HISTORY
    assert (call.tools, call.max_tokens, call.stream, call.count, call.model) == ((ADD,), 9, True, 1, "m")
    assert f"rl_agents.gateway.dialects.{call.dialect}" == dialect.__name__


def test_what_training_overrides_is_kept_as_wishes_and_the_unknown_is_named() -> None:
    chat, response, message = (dialect.read(body) for dialect, body in FULL)
    assert chat.params == {"temperature": 0.2, "seed": 4} and chat.options == {"include_usage": False}
    assert chat.ignored == {"color": 1, "messages.name": 1} and chat.stop == ("END",)
    params = {"text.format": {"type": "json_object"}, "text.verbosity": "low", "tools.strict": True}
    assert response.params == {"temperature": 0.2, **params}
    notes = {"store": False, "metadata": {"who": "me"}, "prompt_cache_key": "k"}
    assert response.options == {**notes, "instructions": BRIEF}
    assert response.ignored == {"color": 1, "input.phase": 1} and response.stop == ()
    assert message.params == {"temperature": 0.2, "top_k": 3, "thinking": {"type": "enabled", "budget_tokens": 5}}
    assert message.options == {"metadata": {"user_id": "u"}}
    assert message.ignored == {"color": 1, "content.redacted_thinking": 1} and message.stop == ("END",)


@pytest.mark.parametrize(("dialect", "body"), FULL)
def test_null_is_as_good_as_nothing(dialect: ModuleType, body: dict[str, Any]) -> None:
    needed = {"model", "messages", "input", "max_tokens", "instructions", "system"}
    nulls = {name: value if name in needed else None for name, value in body.items()}
    call = dialect.read(nulls)
    assert call.messages == HISTORY and not call.tools and not call.stream and not call.params and call.stop == ()
    assert {name for name in call.options if name not in ("instructions", "include_usage")} == set()


def test_chat_options_are_read_and_counting_needs_no_limit() -> None:
    call = chat_completions.read(changed(CHAT, stream_options={"include_usage": True}, n=3, stop=["a", "b", "a"]))
    assert call.options["include_usage"] is True and call.count == 3 and call.stop == ("a", "b")
    both = chat_completions.read(changed(CHAT, max_tokens=5))
    assert both.max_tokens == 9  # the new name wins
    assert chat_completions.read({**said(ASKED), "max_tokens": 5}).max_tokens == 5
    body = {name: value for name, value in MESSAGES.items() if name != "max_tokens"}
    call = messages.read_count(body)
    assert call.messages == HISTORY and call.max_tokens is None and messages.counted(7) == {"input_tokens": 7}


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def turn(content: str, *calls: tuple[str, dict[str, Any]], **more: Any) -> dict[str, Any]:
    made = [
        {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(calls, 1)
    ]
    return {"role": "assistant", "content": content, **({"tool_calls": made} if made else {}), **more}


FAILURE = {"type": "tool_result", "tool_use_id": "c", "is_error": True}
THOUGHT = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}], "summary": []}


@pytest.mark.parametrize(("dialect", "item", "message"), [
    (chat_completions, {"role": "assistant", "content": None}, turn("")),
    (chat_completions, {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}, turn("No.")),
    (chat_completions, {"role": "assistant", "content": None, "refusal": "No."}, turn("No.")),
    (chat_completions, turn("<think>Hm.</think>Yes."), turn("Yes.", reasoning_content="Hm.")),
    (chat_completions, turn("Yes.", reasoning="Hm."), turn("Yes.", reasoning_content="Hm.")),
    (responses, THOUGHT, turn("", reasoning_content="Hm.")),
    (messages, {"role": "user", "content": [FAILURE]}, {"role": "tool", "content": "Error: ", "tool_call_id": "c"}),
])  # fmt: skip
def test_what_clients_send_back_is_accepted(dialect: ModuleType, item: dict[str, Any], message: dict[str, Any]) -> None:
    assert dialect.read(said(item, ASKED)).messages == (message, ASKED)


def test_thoughts_come_as_a_message_and_responses_follow_others() -> None:
    items = [{"role": "assistant", "content": text} for text in ("<think>\nHm.\n</think>", "Yes.")]
    call = responses.read(said(ASKED, *items))
    assert call.messages == (ASKED, {"role": "assistant", "content": "Yes.", "reasoning_content": "\nHm.\n"})
    output = {"type": "function_call_output", "call_id": "c1", "output": "5"}
    reference = {"type": "item_reference", "id": "fc_1"}
    body = {"model": "m", "input": [reference, output], "previous_response_id": "resp_a1"}
    call = responses.read(body)
    assert call.previous == "a1" and call.messages == (RESULTS[0],)
    assert responses.read({"model": "m", "input": [], "previous_response_id": "resp_resp_x"}).previous == "resp_x"
    alone = responses.read({"model": "m", "input": [reference, ASKED]})
    assert alone.messages == (ASKED,) and alone.ignored == {"input.item_reference": 1}


def asked(**fields: Any) -> dict[str, Any]:
    return {**said(ASKED), **fields}


def called(arguments: Any, form: str = "function", name: str = "f") -> dict[str, Any]:
    """A call as chat completions and responses have it, in one item."""
    body = {"name": name, ("input" if form == "custom" else "arguments"): arguments}
    chat = {"role": "assistant", "tool_calls": [{"id": "c1", "type": form, form: body}]}
    return {**chat, "type": "custom_tool_call" if form == "custom" else "function_call", "call_id": "c1", **body}


RESULT = {"role": "tool", "tool_call_id": "c1", "content": "5", "type": "function_call_output", "call_id": "c1",
          "output": "5"}  # fmt: skip
OURS = {"role": "tool", "content": "5", "tool_call_id": "c1"}
BROKEN = ['{"cmd": "ls', "[1]", '{"a": 1, "a": 2}', "7"]
NO_IMAGE = "excluded: the model reads text only]"
PATCH = {"type": "custom", "name": "patch", "description": "Edits.", "format": {"type": "grammar"}}
SPAWN = {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "spawn", "parameters": SCHEMA}]}
#: What real agents send and the providers accept: what it becomes, and how it is counted.
ACCEPTED: list[tuple[ModuleType, dict[str, Any], tuple[dict[str, Any], ...], dict[str, int]]] = [
    *(
        (dialect, said(ASKED, called(text), RESULT), (ASKED, turn(f"f({text})"), OURS), {"calls.unreadable": 1})
        for dialect in (chat_completions, responses)
        for text in BROKEN
    ),
    *(
        (dialect, said(ASKED, called("*** Begin", "custom")), (ASKED, turn("", ("f", {"input": "*** Begin"}))), {})
        for dialect in (chat_completions, responses)
    ),
    (
        responses,
        said(ASKED, {**called("{}"), "namespace": "agents"}, {"type": "web_search_call", "id": "x"}),
        (ASKED, turn("", ("agents.f", {}))),
        {"input.web_search_call": 1},
    ),
    (responses, said({"type": "compaction", "encrypted_content": "x"}), (user(""),), {"input.compaction": 1}),
    *(
        (dialect, said({"role": "user", "content": [{"type": "text", "text": "See:"}, {"type": kind, "x": 1}]}),
         (user(f"See:\n[{kind} {NO_IMAGE}"),), {f"content.{kind}": 1})
        for dialect, kind in (
            (chat_completions, "image_url"), (chat_completions, "input_audio"), (responses, "input_image"),
            (responses, "input_file"), (messages, "image"), (messages, "document"),
        )
    ),
    (
        messages,
        said({"role": "user", "content": [{"type": "document", "source": {"type": "text", "data": "All of it."}}]}),
        (user("All of it."),),
        {},
    ),
    (
        messages,
        said({"role": "user", "content": [{"type": "document", "source": "all-of-it.pdf"}]}),
        (user(f"[document {NO_IMAGE}"),),
        {"content.document": 1},
    ),
    (
        messages,
        said({"role": "user", "content": [{"type": "tool_result", "content": [{"type": "image", "source": {}}]}]}),
        ({"role": "tool", "content": f"[image {NO_IMAGE}", "tool_call_id": ""},),
        {"content.image": 1},
    ),
    (
        messages,
        said(
            user("x"),
            {"role": "assistant", "content": [
                {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
                {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
                {"type": "text", "text": "Five."},
            ]},
            {"role": "system", "content": "Be brief."},
        ),
        (user("x"), turn("Five."), {"role": "system", "content": "Be brief."}),
        {"content.server_tool_use": 1, "content.web_search_tool_result": 1},
    ),
    (messages, said(ASKED, {"role": "assistant", "content": "I"}), (ASKED, turn("I")), {"messages.prefill": 1}),
    (
        messages,
        asked(system=[{"type": "text", "text": "x-anthropic-billing-header: cch=1;"}, {"type": "text", "text": "Go."}]),
        ({"role": "system", "content": "Go."}, ASKED),
        {"system.billing_header": 1},
    ),
    (messages, asked(mcp_servers=[{"url": "x"}], container="c"), (ASKED,), {"mcp_servers": 1, "container": 1}),
    (responses, asked(background=True, client_metadata={"a": "b"}), (ASKED,), {"background": 1}),
    (chat_completions, asked(audio={"voice": "x"}), (ASKED,), {"audio": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "body", "history", "ignored"), ACCEPTED)
def test_what_the_providers_accept_is_accepted(dialect, body, history, ignored) -> None:
    own = {"messages": ("input",), "chat_completions": ("input",), "responses": ("messages", "max_tokens")}
    name = dialect.__name__.rpartition(".")[2]
    call = dialect.read({key: value for key, value in body.items() if key not in own[name]})
    fields = {name for name in call.ignored if name.startswith(("messages.", "input.")) and name not in ignored}
    assert call.messages == history and {k: v for k, v in call.ignored.items() if k not in fields} == ignored


def test_tools_that_the_agent_runs_are_offered_and_the_others_counted() -> None:
    add = {"type": "function", "name": "add", "description": "Adds.", "parameters": SCHEMA}
    call = responses.read({"model": "m", "input": "x", "tools": [add, PATCH, SPAWN, add, {"type": "web_search"}]})
    assert [tool.name for tool in call.tools] == ["add", "patch", "agents.spawn"]
    assert call.tools[1].parameters["properties"] == {"input": {"type": "string"}}
    assert call.forms == {"patch": ToolForm("patch", True), "agents.spawn": ToolForm("spawn", False, "agents")}
    assert call.ignored == {"tools.web_search": 1, "tools.twice": 1}
    search = {"type": "web_search_20250305", "name": "web_search"}
    claude = messages.read({**said(ASKED), "tools": [search]})
    assert not claude.tools and claude.ignored == {"tools.web_search_20250305": 1, "input": 1}


#: By what no library checks: the words are ours. Types and ranges: `serving.test_bad_requests`.
REFUSED: list[tuple[ModuleType, dict[str, Any], str, str]] = [
    (chat_completions, said(ASKED, "hi"), "messages", "messages[1]: a message is str, not an object"),
    (chat_completions, said({"content": "x"}), "messages", "messages[0]: a message without role"),
    (chat_completions, asked(tools=[{"function": {}}]), "tools", "tools: a tool definition without a usable name"),
    *(
        (chat_completions, asked(tools=[{"function": {"name": "f", "parameters": schema}}]), "tools", message)
        for schema, message in (
            ({"type": "thing"}, "tools: tool 'f': parameters is no JSON schema"),
            ({"$schema": []}, "tools: tool 'f': parameters is no JSON schema: its $schema is no text"),
            ({"$id": []}, "tools: tool 'f': parameters is no JSON schema: [] is not of type 'string'"),
        )
    ),
    (responses, said(), "input", "input: a text or a list of at least one item is needed"),
    (responses, asked(conversation="conv_1"), "conversation", "conversation: conversations are not kept"),
    (responses, asked(prompt={"id": "p"}), "prompt", "prompt: stored prompts are not kept"),
    (messages, asked(system=7), "system", "system: content is int, not text"),
    (messages, said({"role": "tool", "content": "x"}), "messages", "messages[0]: unknown role 'tool'; valid: user"),
    (messages, said({"role": "user", "content": 7}), "messages", "messages[0]: content is int, not text or a list"),
    (messages, asked(tools=[{"name": "f", "input_schema": 7}]), "tools", "tools: tool 'f': parameters is int"),
]


@pytest.mark.parametrize(("dialect", "body", "param", "message"), REFUSED, ids=[row[3][:50] for row in REFUSED])
def test_fields_that_matter_are_refused(dialect: ModuleType, body: dict[str, Any], param: str, message: str) -> None:
    with pytest.raises(ApiError) as refused:
        dialect.read(body)
    assert refused.value.status == 400 and refused.value.param == param and message in refused.value.message
    told = error_body(refused.value, dialect.PATH, {})
    assert told["error"]["message"] == refused.value.message and told["error"]["type"] == "invalid_request_error"
