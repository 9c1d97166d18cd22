"""Games of textarena: the same moves give the same texts and rewards as in the library's own loop, and opponents."""

import copy
import importlib.util
import random
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from loopback import Reply, Request, completion, loopback

from rl_agents import errors
from rl_agents.chat.template import ChatTemplate
from rl_agents.config.options import keys_of
from rl_agents.envs.base import env_spec, read_env_options, starter_spec, synchronous, task_ids
from rl_agents.envs.base import make_env as make_awaited
from rl_agents.envs.textarena.opponents import listed_move
from rl_agents.errors import InputError, NoPlayer
from rl_agents.web.model_server import ServerError

INSTALLED = importlib.util.find_spec("textarena") is not None
needs_library = pytest.mark.skipif(not INSTALLED, reason="textarena is not installed")
HERE = __name__


def make_env(name: str, options: dict[str, Any], max_turns: int = 0) -> Any:
    return synchronous(make_awaited(name, options, max_turns))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textarena", None)
    monkeypatch.delitem(sys.modules, "textarena.envs.registration", raising=False)
    with pytest.raises(InputError, match=r"the package textarena is missing .*: pip install .*textarena"):
        env_spec("textarena:TicTacToe-v0")


@pytest.mark.parametrize(
    ("text", "moves"),
    [
        ("Available Moves: '[0]', '[1 2]'\nBoard", {"[0]", "[1 2]"}),
        ("Available Actions: [up]\nlater\nYour available actions are: '[check]', '[bet]'", {"[check]", "[bet]"}),
        ("In each round, respond with one of: '[rock]', '[paper]', or '[scissors]'.", {"[rock]", "[paper]", "[scissors]"}),  # noqa: E501
        ("[GAME] Your move is invalid. Reason: use [a] or [b]. Please submit a valid move.", set()),
        ("For example, '[4]' places your mark. [Player 0] [4]", set()),
    ],
)  # fmt: skip
def test_listed_moves(text: str, moves: set[str]) -> None:
    rng = random.Random(0)
    if moves:
        assert {listed_move(text, rng) for _ in range(40)} == moves
    else:
        with pytest.raises(InputError, match="lists no moves"):
            listed_move(text, rng)


def second(observation: str, rng: random.Random) -> str:
    """An opponent: the listed moves, or else a wrong one now and then."""
    return listed_move(observation, rng) if rng.random() < 0.9 else "[none]"


def own_runner(game: str, players: int, seat: int, seed: int, agent: random.Random) -> tuple[list[str], dict[int, Any]]:
    """What the agent's seat reads, and all rewards, in the library's own loop."""
    import textarena as ta

    random.seed(seed)  # some games draw before the reset
    env, opponents, read, done = ta.make(game), random.Random(seed), [], False
    env.reset(num_players=players, seed=seed)
    while not done:
        player, text = env.get_observation()
        if player == seat:
            read.append(text)
        done, _ = env.step(moved(text, agent) if player == seat else second(text, opponents))
    return read, env.close()[0]


def moved(text: str, rng: random.Random) -> str:
    return "[nonsense]" if rng.random() < 0.1 else listed_move(text, rng)


GAMES = {
    "FrozenLake-v0": 1, "Blackjack-v0": 1, "2048-v0-ultra-easy": 1, "TicTacToe-v0": 2, "KuhnPoker-v0": 2,
    "Othello-v0-tiny": 2, "IteratedPrisonersDilemma-v0": 2, "TicTacToe-v0-train": 2, "ThreePlayerTicTacToe-v0": 3,
}  # fmt: skip


@needs_library
@pytest.mark.parametrize("game", GAMES)
def test_texts_and_rewards_are_those_of_the_library(game: str) -> None:
    players = GAMES[game]
    env = make_env(f"textarena:{game}", {"opponent": f"{HERE}:second", "players": 3 * (players == 3)}, max_turns=1000)
    before = random.getstate()
    for seed in range(6):
        seat = seed % players
        theirs, rewards = own_runner(game, players, seat, seed, random.Random(seed))
        random.setstate(before)
        observation, info = env.reset(options={"task_id": f"seed-{seed}"})
        rng, read, total, over = random.Random(seed), [], 0.0, False
        while not over:
            begun = not observation.startswith("The game is over")
            read += [observation] * begun
            observation, reward, over, truncated, info = env.step(moved(observation, rng) if begun else "")
            total += reward
            assert not truncated and (over or info["new_dialogue"])
        assert read == theirs and total == float(rewards[seat])
        assert info["success"] == (total >= 1) and info["metrics"]["turns"] == max(len(read), 1)
        assert players == 1 or info["metrics"][f"reward_seat_{seat}"] == total
    assert random.getstate() == before  # of the caller


@needs_library
def test_without_wrappers_a_turn_adds_what_is_new() -> None:
    env = make_env("textarena:TicTacToe-v0-raw", {"seat": 1, "opponent": f"{HERE}:first_free"})
    observation, _ = env.reset(options={"task_id": "seed-4"})
    assert observation.count("You are Player 1") == 1 and "[Player 0] [0]" in observation
    observation, *_, info = env.step("[8]")
    assert info["valid"] and not info["new_dialogue"] and "You are" not in observation
    assert "[Player 0] [1]" in observation and "[Player 1] [8]" not in observation
    assert not env.step("[8]")[-1]["valid"]
    assert env.step("<think> [7] </think> [3]")[-1]["valid"]
    assert "Player 1 placed their symbol (X) in cell 3" in str(env.snapshot().game.state.logs)  # type: ignore[attr-defined]


def first_free(observation: str, rng: random.Random) -> str:
    import re

    return re.findall(r"\[\d\]", observation.splitlines()[-1])[0]


@needs_library
@pytest.mark.parametrize("game", ["KuhnPoker-v0-raw", "PigDice-v0", "2048-v0-ultra-easy", "RushHour-v0"])
def test_a_snapshot_continues_in_the_same_way(game: str) -> None:
    env = make_env(f"textarena:{game}", {"kwargs": {"max_rounds": 3} if "Kuhn" in game else {}})
    other = make_env(f"textarena:{game}", {"kwargs": {"max_rounds": 3} if "Kuhn" in game else {}})

    def finish(one: Any, observation: str) -> list[Any]:
        rng, told = random.Random(3), []
        for _ in range(30):
            try:
                action = listed_move(observation, rng)
            except InputError:
                action = "[A+]"
            told.append(one.step(action))
            observation = told[-1][0]
            if told[-1][2] or told[-1][3]:
                break
        return told

    observation, _ = env.reset(seed=5, options={"task_id": "seed-2"})
    state = env.snapshot()  # type: ignore[attr-defined]
    kept = copy.deepcopy(state)
    first = finish(env, observation)
    for one in (env, other):
        one.restore(state)  # type: ignore[attr-defined]
        assert finish(one, observation) == first
    assert kept.chats == state.chats
    assert env.reset(seed=6, options={"task_id": "seed-2"})[0] == observation  # the task is the start


def played(env: Any) -> dict[str, Any]:
    rng = random.Random(0)
    observation, info = env.reset(seed=1, options={"task_id": "seed-1"})
    over = False
    while not over:
        observation, _, over, _, info = env.step(listed_move(observation, rng))
    return info


@needs_library
def test_a_served_model_plays() -> None:
    async def answer(request: Request) -> Reply:
        move = listed_move(request.body["messages"][-1]["content"], random.Random(0))
        return Reply(completion(f"<think> [99] </think> {move}"))

    with loopback(answer) as server:
        options = {"opponent": server.url, "opponent_model": "rival"}
        info = played(make_env("textarena:TicTacToe-v0-raw", options))
    first, *_, last = (request.body for request in server.requests)
    assert info["metrics"]["invalid_moves"] == 0 and first["model"] == "rival" and first["seed"] != last["seed"]
    assert [one["role"] for one in last["messages"][:3]] == ["user", "assistant", "user"]
    assert "<think>" not in str(last["messages"]), "thoughts are not a part of the game"


@needs_library
def test_a_server_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_agents.envs.textarena.opponents.RETRIES", 0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        env = make_env("textarena:TicTacToe-v0", {"opponent": url, "seat": 1})
        with pytest.raises(ServerError, match=f"env.opponent={url}: .*Connect"):
            env.reset(options={"task_id": "seed-0"})


@needs_library
@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("TicTacTo-v0", {}, "unknown game of textarena 'TicTacTo-v0': did you mean 'TicTacToe-v0'?"),
        ("TwentyQuestions-v0", {}, "TwentyQuestions-v0: the game calls a hosted model, and runs have no network"),
        ("Hangman-v0", {}, "textarena:Hangman-v0: the game needs data of NLTK: python -m nltk.downloader words"),
        ("BabyAiText-v0", {}, "textarena:BabyAiText-v0 cannot be loaded: ModuleNotFoundError: No module named 'gym'"),
        ("TicTacToe-v0", {"players": 3}, "TicTacToe-v0 cannot begin with 3 players: AssertionError"),
        ("TicTacToe-v0", {"kwargs": {"size": 3}}, "TicTacToe-v0 cannot begin with 2 players: TypeError"),
        ("TicTacToe-v0", {"seat": 2}, "env.seat=2: textarena:TicTacToe-v0 has 2 players, counted from 0"),
        ("TicTacToe-v0", {"opponent": "models/rival"}, "env.opponent=models/rival: there is no such folder"),
        ("TicTacToe-v0", {"opponent": f"{HERE}:secnod"}, "'secnod': did you mean 'second'?"),
        ("TicTacToe-v0", {"opponent_tokens": 9}, "env.opponent_tokens"),
        ("Tak-v0", {"seat": 1}, "the game lists no moves to draw from: set another env.opponent"),
        ("TicTacToe-v0", {"task": "seven"}, "task 'seven': write it as seed-<number>"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    name: str, options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nltk = importlib.import_module("nltk")
    monkeypatch.setattr(nltk.data, "path", [])
    given = {key: value for key, value in options.items() if key != "task"}
    with pytest.raises(InputError) as error:
        spec = env_spec(f"textarena:{name}")
        read_env_options(spec, given, chosen=given)
        make_env(spec.name, given).reset(options={"task_id": options.get("task", "seed-0")})
    assert message in str(error.value) and "\n" not in str(error.value)


@needs_library
def test_wrong_moves_of_an_opponent_are_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(errors, "_reported", set())
    env = make_env("textarena:TicTacToe-v0", {"opponent": f"{HERE}:wrong", "seat": 0})
    env.reset(options={"task_id": "seed-0"})
    assert env.step("[4]")[1:3] == (1.0, True)
    assert f"TicTacToe-v0: the opponent {HERE}:wrong loses games by moves that are not valid" in capsys.readouterr().err
    env = make_env("textarena:TicTacToe-v0", {"opponent": f"{HERE}:wrong", "seat": 1})
    assert "The game is over" in env.reset(seed=0)[0]  # before the agent's first turn
    assert env.step("[4]")[1:3] == (1.0, True)


def wrong(observation: str, rng: random.Random) -> str:
    return "[nowhere]"


@needs_library
def test_swapped_rewards_are_read() -> None:
    env = make_env("textarena:Countdown-v0", {})
    env.reset(options={"task_id": "seed-0"})
    env.step("?")
    assert env.step("?")[1] == pytest.approx(env.snapshot().game._calculate_progress())  # type: ignore[attr-defined]


@needs_library
def test_a_model_as_opponent(tmp_path: Path) -> None:
    with pytest.raises(NoPlayer, match="or use textarena:KuhnPoker-v0-raw if the game lists its moves"):
        starter_spec("textarena:KuhnPoker-v0")
    starter = starter_spec("textarena:KuhnPoker-v0-raw")
    tokenizer = starter.build_tokenizer()
    for part in (tokenizer, starter.build_model(tokenizer, 0)):
        part.save_pretrained(tmp_path)
    assert played(make_env("textarena:KuhnPoker-v0-raw", {"opponent": str(tmp_path), "opponent_tokens": 8}))["metrics"]


@needs_library
def test_text_of_a_game_is_no_control_token() -> None:
    name = "textarena:KuhnPoker-v0-raw"
    template = ChatTemplate(starter_spec(name).build_tokenizer())
    assert "opponent" in keys_of(env_spec(name).options) and task_ids(name, "test", {})
    env = make_env(name, {"opponent": f"{HERE}:liar", "seat": 0})
    marks = [word for word in template.special.values() if word]
    liar.says = "".join(marks)  # type: ignore[attr-defined]
    observation, _ = env.reset(options={"task_id": "seed-0"})
    assert all(mark in observation for mark in marks)
    bare = observation.replace("".join(marks), "")
    said, plain = (template.chat_ids([{"role": "user", "content": text}]) for text in (observation, bare))
    specials = [[token for token in ids if token in template.special] for ids in (said, plain)]
    assert specials[0] == specials[1]


def liar(observation: str, rng: random.Random) -> str:
    return f"[check] {liar.says}"  # type: ignore[attr-defined]
