"""One turn: prompt, response and the environment's answer. Episodes and searches share it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rl_agents.chat.template import ContextPolicy, Dialogue
from rl_agents.config import Settings
from rl_agents.data.trajectory import Step
from rl_agents.envs.base import TextEnv, env_spec
from rl_agents.errors import InputError
from rl_agents.inference.base import Completion, Engine, Sampling, check_completion, least_room
from rl_agents.rollout.env_calls import EnvFailure, EnvReply, read_step
from rl_agents.rollout.env_worker import EnvGuard
from rl_agents.rollout.prompting import TRIALS
from rl_agents.rollout.recording import Recorder
from rl_agents.rollout.truncation import Truncation


def episode_turns(settings: Settings) -> int:
    """Return the turn limit of a whole episode; with Reflexion, all attempts and the reflections between them."""
    turns = settings.max_turns or env_spec(settings.env).max_turns
    return TRIALS * turns + TRIALS - 1 if settings.prompting == "reflexion" else turns


#: Limits that are keys of a run.
SAME = ("max_response_tokens", "max_model_len", "max_summary_tokens", "temperature", "top_p", "env_timeout_s",
        "max_observation_characters", "task_prefix")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an episode, and how its responses are sampled.

    Attributes:
        max_response_tokens: maximum sampled tokens per step; fewer if the context is nearly full.
        max_model_len: maximum tokens of prompt and response.
        max_summary_tokens: as ``max_response_tokens``, of a summary; 0: the same.
        temperature: sampling temperature; 0 is greedy.
        env_timeout_s: maximum seconds of one reset or step; 0: no limit.
        truncation: T3; None in evaluations.
        max_observation_characters: of one observation, whose middle is cut; 0: no limit.
        next_prompt: record what the policy would have read next in a cut episode.
        hints: record what a teacher reads in addition.
        task_prefix: begins the task ids of one of several environments, which does not know it.
    """

    max_turns: int
    max_response_tokens: int
    max_model_len: int
    temperature: float = 1.0
    top_p: float = 1.0
    env_timeout_s: float = 60.0
    truncation: Truncation | None = None
    max_observation_characters: int = 0
    next_prompt: bool = False
    hints: bool = False
    max_summary_tokens: int = 0
    task_prefix: str = ""

    @classmethod
    def from_settings(cls, settings: Settings) -> Limits:
        return cls(
            max_turns=episode_turns(settings),
            truncation=Truncation.from_settings(settings),
            next_prompt=getattr(settings, "bootstrap_on_truncation", False),
            hints=bool(settings.teacher or settings.teacher_url),
            **{name: getattr(settings, name) for name in SAME},
        )

    def for_evaluation(self, temperature: float) -> Limits:
        """Return the limits of an evaluation: another temperature, and no truncation."""
        return replace(self, temperature=temperature, truncation=None, next_prompt=False, hints=False)


@dataclass(frozen=True, slots=True)
class Player:
    """The policy: an engine that samples, a context that writes prompts, and limits. It holds no state of episodes.

    Attributes:
        recorder: writes samples to the pool; None: nothing is recorded.
    """

    engine: Engine
    context: ContextPolicy
    limits: Limits
    recorder: Recorder | None = None

    async def prompt(self, env: TextEnv, guard: EnvGuard, dialogue: Dialogue) -> list[int]:
        """Return the ids that the policy reads next.

        Raises:
            EnvFailure: the environment's own window format failed.
        """
        render = getattr(env, "render_window", None)
        window = None if render is None else self.context.window(dialogue)
        if render is None or window is None:
            return self.context.prompt(dialogue)
        message = await guard.call(render, *window)
        if not isinstance(message, str):
            raise EnvFailure(f"env_garbage: render_window returned {type(message).__name__}, not a str")
        return self.context.prompt(dialogue, lambda task, history, observation: message)

    def has_room(self, prompt_ids: list[int], most: int = 0) -> bool:
        """Return whether a response of at most ``most`` tokens, 0 for the limits', is worth sampling."""
        return len(prompt_ids) + least_room(most or self.limits.max_response_tokens) <= self.limits.max_model_len

    async def complete(
        self, prompt_ids: list[int], seed: int, parent: int = 0, before: Step | None = None, most: int = 0
    ) -> Completion:
        """Sample a response, or return the recorded one for this prompt and seed.

        Args:
            parent: the previous call of the dialogue; 0: none.
            before: its step, if that is known.
            most: maximum sampled tokens; 0: the limits'.

        Raises:
            EngineError: the engine failed, or its completion would corrupt training.
        """
        if self.recorder is not None and (known := self.recorder.recall(prompt_ids, seed)) is not None:
            return known
        budget = min(most or self.limits.max_response_tokens, self.limits.max_model_len - len(prompt_ids))
        stops, limits = self.context.template.stop_token_ids, self.limits
        sampling = Sampling(
            max_tokens=budget, temperature=limits.temperature, top_p=limits.top_p, stop_token_ids=stops, seed=seed
        )
        completion = await self.engine.generate(prompt_ids, sampling)
        check_completion(completion, budget)
        if self.recorder is None:
            return completion
        return self.recorder.record(prompt_ids, completion, seed, parent, before)

    def step(self, prompt_ids: list[int], completion: Completion, answer: EnvReply, chat: str = "") -> Step:
        """Return the step that responds to ``answer``; its reward is not known yet.

        Args:
            chat: the beginning of the dialogue, as in `Dialogue.chat`.
        """
        action, said = self.context.template.action(completion.token_ids, chat), completion
        return Step(
            prompt_ids, said.token_ids, said.logprobs, said.policy_version, said.finish_reason, answer.observation,
            answer.anchor, action, call=said.call, version_spans=said.version_spans,
        )  # fmt: skip

    def step_by_hand(self, prompt_ids: list[int], action: str, answer: EnvReply) -> Step:
        """Return the step of a human player, whose log-probabilities are all 0.

        Raises:
            InputError: the context has no room for it.
        """
        ids = self.context.template.answer_ids(action)
        if len(prompt_ids) + len(ids) > self.limits.max_model_len:
            raise InputError(
                f"an action of {len(ids)} tokens after a prompt of {len(prompt_ids)} does not fit "
                f"max_model_len={self.limits.max_model_len}"
            )
        step = self.step(prompt_ids, Completion(ids, [0.0] * len(ids), 0, "stop"), answer)
        step.action = action  # unchanged, even if the tokenizer lacks a character
        return step

    async def act(self, env: TextEnv, guard: EnvGuard, step: Step) -> EnvReply:
        """Let the environment answer the step's action; fill the step's reward, validity and metrics.

        Raises:
            EnvFailure: the environment raised, hung or returned invalid values.
        """
        answer = read_step(await guard.call(env.step, step.action), self.limits.max_observation_characters, env)
        step.reward, step.valid, step.metrics = answer.reward, answer.valid, answer.turn_metrics
        return answer


def next_dialogue(dialogue: Dialogue, step: Step, answer: EnvReply) -> Dialogue:
    """Return the dialogue after a step and its answer, or a new one if the answer begins one."""
    if answer.new_dialogue:
        return Dialogue.start(answer.observation, answer.chat)
    return dialogue.after(step.prompt_ids, step.response_ids, step.action, answer.observation, answer.further)


def end_cause(answer: EnvReply, turns: int, max_turns: int) -> str:
    """Return why the episode ends with this answer after ``turns`` steps; empty if it continues."""
    if answer.terminated:
        return "terminated"
    if turns >= max_turns:
        return "max_turns"
    return "env_truncated" if answer.truncated else ""


def is_success(answer: EnvReply, episode_return: float) -> bool:
    """Return the success that the environment reports, or else whether the return is positive."""
    return episode_return > 0 if answer.success is None else answer.success
