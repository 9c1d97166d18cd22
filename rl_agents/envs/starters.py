"""Warm-start models: the scripted players that they imitate, their tokenizers, and untrained Qwen3 networks.

A family's module ``demonstrations`` states its player, its words and its settings, and `word_starter` makes the model.

Qwen3 and not Qwen2, because `AutoTokenizer` replaces any tokenizer next to a Qwen2 model with Qwen2's own.
Transformers' default standard deviation of the weights, 0.02, leaves such a narrow model on a plateau.

One tokenizer has a token per word. The other, for real text, is a byte-level BPE trained on an environment's own text;
it encodes every text and decodes it unchanged. Its merges cross spaces (as SuperBPE's, arXiv 2503.13423), so that a
paper's fixed sentences become a few tokens, and most computation is for the parts that change. Texts that are copied
from a prompt into an action (``kept``) are split off first, so that they always have the same ids.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from rl_agents.background import settled
from rl_agents.envs.spec import StarterSpec
from rl_agents.envs.stateful import Dialogue, StatefulEnv
from rl_agents.errors import InputError
from rl_agents.startup import leave_out_sklearn

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

#: One episode's player: (observation, whether it must answer at once) -> action. It may read ``env.state``.
Act = Callable[[str, bool], str]

TAGS = ("think", "interact", "answer")
#: The end of a call in the words of a small model.
CALL_END = '"}}'


def call_begin(tool: str, argument: str) -> str:
    """Return the JSON of a call before its argument's text: one word of a small model.

    >>> call_begin("expand", "paper_id")
    '{"name":"expand","arguments":{"paper_id":"'
    """
    return f'{{"name":"{tool}","arguments":{{"{argument}":"'


def compact_call(tool: str, argument: str, text: str) -> str:
    """Return a call in the words of a small model, separated by blanks."""
    return f"<tool_call> {call_begin(tool, argument)} {text} {CALL_END} </tool_call>"


class Slips:
    """The errors of a scripted player: ``slips("repeats")`` is true with the probability of that error."""

    def __init__(self, chances: Mapping[str, float], rng: random.Random) -> None:
        self.rng, self._chances = rng, chances

    def __call__(self, name: str) -> bool:
        return self.rng.random() < self._chances[name]


@dataclass(frozen=True)
class ScriptedPlayer:
    """A player of one family, called as `StarterSpec.demonstrate` is.

    Attributes:
        env: the environment's class.
        begin: (environment after its reset, errors) -> the player of that episode.
        slips: error -> its probability; it makes the player mediocre, so that reinforcement learning can improve what
            imitates it. ``hurried`` is the probability per turn, after the first, of an instruction to answer at once,
            in the words of T3's forced answers, so that the warm-start model understands them.
        fixed: options that replace those of the run.
        spare: run a task of neither split, of the size of the requested one, because a warm-start model memorizes its
            tasks.
        most_turns: of an episode; 0 for the environment's.
    """

    env: Callable[[Any, int], StatefulEnv[Any, Any]]
    begin: Callable[[Any, Slips], Act]
    slips: Mapping[str, float] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=lambda: {"prompt": "compact"})
    spare: bool = False
    most_turns: int = 0

    @property
    def flawless(self) -> ScriptedPlayer:
        return replace(self, slips=dict.fromkeys(self.slips, 0.0))

    def __call__(self, task_id: str, rng: random.Random, options: Any, max_turns: int = 0) -> Dialogue:
        """Run ``task_id`` and return the dialogue; raises `InputError`: there is no such task."""
        return self.play(task_id, options, max_turns, rng)[0]

    def play(
        self, task_id: str, options: Any, max_turns: int = 0, rng: random.Random | None = None
    ) -> tuple[Dialogue, dict[str, Any]]:
        """Run ``task_id``; return the dialogue and the last ``info``."""
        slips = Slips(self.slips, rng or random.Random(task_id))
        most = min(max_turns or self.most_turns, self.most_turns or max_turns)
        env = self.env(replace(options, **self.fixed), most)
        if self.spare:
            task_id = f"{task_id.partition('/')[0]}/spare/{slips.rng.randrange(1_000_000):06d}"
        observation, info = settled(env.reset(options={"task_id": task_id}))
        act = self.begin(env, slips)
        hurries = "hurried" in self.slips and env.options.prompt == "compact"
        dialogue: Dialogue = []
        over = False
        while not over:
            hurried = hurries and bool(dialogue) and slips("hurried")
            shown = f"{observation}\n{env.answer_instruction}" if hurried else observation  # type: ignore[attr-defined]
            dialogue.append((shown, act(observation, hurried)))
            observation, _, terminated, truncated, info = settled(env.step(dialogue[-1][1]))
            over = terminated or truncated
        env.close()
        return dialogue, info


def word_starter(
    demonstrate: Callable[..., Dialogue],
    words: Callable[[], Sequence[str]],
    *,
    max_tokens: int,
    tags: Sequence[str] = TAGS,
    compose: Callable[[torch.Tensor, Mapping[str, int]], None] | None = None,
    heads: int = 2,
    training: Mapping[str, Any] = MappingProxyType({}),
    defaults: Mapping[str, Any] = MappingProxyType({}),
    **rest: Any,
) -> StarterSpec:
    """Declare a warm-start model of whole words.

    Args:
        demonstrate: the player that it imitates.
        words: its vocabulary, except special tokens and tags.
        max_tokens: context length.
        compose: overwrites embeddings (`small_qwen3`).
        training: differences from `IMITATION`.
        defaults: differences from `RUNS`, the settings of runs with it. It reads compact prompts only.
        rest: other fields of `StarterSpec`.
    """
    return StarterSpec(
        build_tokenizer=lambda: word_tokenizer(words(), tags, max_tokens),
        build_model=partial(small_qwen3, heads=heads, compose_embeddings=compose),
        demonstrate=demonstrate,
        training={**IMITATION, **training},
        defaults={"env.prompt": "compact", **RUNS, **defaults},
        **rest,
    )


#: Settings of runs with a warm-start model that most families share.
RUNS: Mapping[str, Any] = {"lr": 5e-4, "iterations": 60, "eval_episodes": 300, "eval_interval": 20}


PAD, UNKNOWN, END_OF_TURN, SYSTEM, USER, ASSISTANT = "<pad>", "<unk>", "<end>", "<system>", "<user>", "<assistant>"
SPECIAL_TOKENS = (PAD, UNKNOWN, END_OF_TURN, SYSTEM, USER, ASSISTANT)
INIT_STD = 0.1

# Words are separated by spaces, which the tokenizer ignores, so turns that are rendered one by one have the same ids as
# a whole dialogue. Only the assistant's turns end with the end-of-turn token, because only the model samples it.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}<assistant> "
    "{% generation %}{{ message['content'] | trim }} <end>{% endgeneration %} "
    "{% else %}<{{ message['role'] }}> {{ message['content'] }} {% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
#: For models that call tools: they know those of their environment, whose definitions are a blank, so it has no token.
TOOL_TEMPLATE = "{% if tools %} {% endif %}" + CHAT_TEMPLATE.replace(
    "<{{ message['role'] }}>", "<{{ 'user' if message['role'] == 'tool' else message['role'] }}>"
)


def word_tokenizer(words: Sequence[str], tags: Sequence[str], max_tokens: int) -> PreTrainedTokenizerFast:
    """Build a tokenizer with one token per word; unknown words become ``<unk>``.

    Args:
        words: the vocabulary without special tokens and tags; each without white space.
        tags: tag names, such as ``think``; their tokens need no spaces around them.
        max_tokens: context length.
    """
    vocabulary = [*SPECIAL_TOKENS, *(f"<{slash}{tag}>" for tag in tags for slash in ("", "/")), *words]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token=UNKNOWN))
    pattern = rf"</?(?:{'|'.join(re.escape(tag) for tag in tags)})>"
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [*([pre_tokenizers.Split(Regex(pattern), "isolated")] if tags else []), pre_tokenizers.WhitespaceSplit()]
    )
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    return chat_tokenizer(
        backend, TOOL_TEMPLATE if "tool_call" in tags else CHAT_TEMPLATE, max_tokens, pad_token=PAD, unk_token=UNKNOWN,
        eos_token=END_OF_TURN, additional_special_tokens=[SYSTEM, USER, ASSISTANT],
    )  # fmt: skip


def chat_tokenizer(backend: Tokenizer, template: str, max_tokens: int, **tokens: Any) -> PreTrainedTokenizerFast:
    """Wrap a tokenizer for transformers, with a chat template; ``tokens`` are the special ones."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        padding_side="right",
        model_max_length=max_tokens,
        clean_up_tokenization_spaces=False,
        **tokens,
    )
    tokenizer.chat_template = template
    return tokenizer


def small_qwen3(
    tokenizer: PreTrainedTokenizerFast,
    seed: int,
    *,
    hidden_size: int = 64,
    layers: int = 2,
    heads: int = 2,
    rope_theta: float = 1000.0,
    init_std: float = INIT_STD,
    compose_embeddings: Callable[[torch.Tensor, Mapping[str, int]], None] | None = None,
) -> Qwen3ForCausalLM:
    """Build an untrained model with tied embeddings.

    Args:
        tokenizer: has vocabulary size, special ids and context length.
        seed: of the weights; the caller's random state does not change.
        heads: attention heads, each 32 wide, the smallest size that vLLM's CPU attention supports.
        init_std: standard deviation of the weights.
        compose_embeddings: called with the embedding matrix (vocabulary, hidden) and the vocabulary, to overwrite rows
            in place, so that words with common parts are learned together.
    """
    leave_out_sklearn()
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=32,
        max_position_embeddings=tokenizer.model_max_length,
        rope_parameters={"rope_type": "default", "rope_theta": rope_theta},
        initializer_range=init_std,
        tie_word_embeddings=True,
        attention_dropout=0.0,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
        if compose_embeddings is not None:
            with torch.no_grad():
                compose_embeddings(model.get_input_embeddings().weight, tokenizer.get_vocab())
    return model


def sum_parts(
    weight: torch.Tensor,
    vocab: Mapping[str, int],
    parts: Callable[[str], Sequence[str]],
    terms: Callable[[str], int] | None = None,
) -> None:
    """Overwrite the rows of words that have parts: e(word) = Σ_part v(part) / sqrt(terms), v drawn once per part.

    Words with a common part are then learned together.

    Args:
        weight: the embedding matrix, (vocabulary, hidden).
        parts: word -> the names of its parts; the row of a word without parts does not change.
        terms: word -> the number of terms; by default the number of its parts.
    """
    vectors: dict[str, torch.Tensor] = {}
    for word, index in sorted(vocab.items(), key=lambda item: item[1]):
        names = parts(word)
        for name in names:
            if name not in vectors:
                vectors[name] = torch.randn(weight.shape[1]) * INIT_STD
        if names:
            count = terms(word) if terms else len(names)
            weight[index] = torch.stack([vectors[name] for name in names]).sum(0) / count**0.5


#: Hyper-parameters of the imitation. Muon on hidden matrices and the embeddings' high learning rate matter most.
IMITATION: Mapping[str, Any] = {
    "iterations": 22,
    "minibatches": 20,
    "tasks_per_iteration": 1280,
    "group_size": 1,
    "demonstrations": 8192,
    "optimizer": "muon",
    "muon_lr": 0.02,
    "lr": 5e-3,
    "betas": [0.9, 0.98],
    "lr_warmup": 20,
    "lr_decay": 0.5,
    "tokens_per_microbatch": 1024,
}


TEXT_PAD, TURN, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}"
    "{{ '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def kept_apart(names: Sequence[str]) -> str:
    """Return the pattern of texts that merges do not cross: names, numbers, tags, line ends and list separators."""
    alternatives = "|".join(re.escape(name) for name in names)
    return rf" ?\b(?:{alternatives})\b| ?[0-9]+|</\w+>\s*<\w+>|</?\w+>|', '|\n"


def byte_pieces(pattern: str) -> pre_tokenizers.PreTokenizer:
    """Return the splitter of a lossless tokenizer: at the borders of matches, in bytes."""
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def phrase_tokenizer(texts: Iterable[str], kept: str, vocabulary: int, max_tokens: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE whose merges cross spaces, but not the borders of matches of ``kept``.

    Args:
        texts: prompts and responses for its training.
        kept: regular expression (`kept_apart`).
        vocabulary: maximal number of ids, including special tokens and all 256 bytes.
        max_tokens: context length.
    """
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = byte_pieces(kept)
    backend.decoder = decoders.ByteLevel()
    special = [AddedToken(token, special=True, normalized=False) for token in (TEXT_PAD, TURN, TURN_END)]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    return chat_tokenizer(
        backend, CHATML, max_tokens, pad_token=TEXT_PAD, eos_token=TURN_END, additional_special_tokens=[TURN]
    )


#: Keys of an environment's prompts, in addition to its own keys.
OF_PROMPTS = ("max_model_len", "max_response_tokens")


def shared_starter(starters: Mapping[str, tuple[str, StarterSpec]]) -> StarterSpec:
    """Return the model that reads and imitates what each of the others does, on as many dialogues as all of them.

    Args:
        starters: (environment, its warm-start model) by the environment's name in the run.

    Raises:
        InputError: a model has parts of words instead of words.
    """
    words: dict[str, dict[str, int]] = {}
    length, (_, first), entries = 0, next(iter(starters.values())), []
    for name, (env, starter) in starters.items():
        tokenizer = starter.build_tokenizer()
        if type(tokenizer.backend_tokenizer.model).__name__ != "WordLevel":
            raise InputError(f"model=starter: the warm-start model of {env} has no word for each token; set model=DIR")
        words[name], length = tokenizer.get_vocab(), max(length, tokenizer.model_max_length)
        kept = [key for key in starter.defaults if key in OF_PROMPTS or key.startswith("env.")]
        entries.append({"env": env, "name": name, **{key: starter.defaults[key] for key in kept}})
    every = sorted(set().union(*words.values()) - {*SPECIAL_TOKENS})
    tags = [word[1:-1] for word in every if re.fullmatch(r"<\w+>", word) and f"</{word[1:]}" in every]
    plain = [word for word in every if word not in {f"<{slash}{tag}>" for tag in tags for slash in ("", "/")}]

    def build_model(tokenizer: Any, seed: int) -> Any:
        """Build the first one's network; each environment's words begin as in its own model."""
        model = first.build_model(tokenizer, seed)
        places = tokenizer.get_vocab()
        with torch.no_grad():
            for name, (_, starter) in starters.items():
                rows = [places[word] for word in words[name]]
                own = starter.build_model(tokenizer, seed).get_input_embeddings().weight
                model.get_input_embeddings().weight[rows] = own[rows]
        return model

    trainings = [starter.training for _, starter in starters.values()]
    episodes = sum(own["iterations"] * own["tasks_per_iteration"] for own in trainings)
    iterations = round(episodes / first.training["tasks_per_iteration"])
    totals = {"iterations": iterations, "demonstrations": sum(own["demonstrations"] for own in trainings)}
    rest = {key: value for key, value in first.defaults.items() if key not in entries[0]}
    return StarterSpec(
        build_tokenizer=lambda: word_tokenizer(plain, tags, length),
        build_model=build_model,
        demonstrate=first.demonstrate,
        training={**first.training, **totals},
        defaults={**rest, "environments": entries},
        version=sum(starter.version for _, starter in starters.values()),
        takes="some minutes",
    )
