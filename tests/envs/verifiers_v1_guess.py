"""A v1 environment of verifiers with turns of its own, for test_verifiers.py."""

import verifiers.v1 as vf


class Row(vf.TaskData):
    answer: str = ""


class GuessTask(vf.Task[Row, vf.State, vf.TaskConfig]):
    pass


class GuessTaskset(vf.Taskset[GuessTask, vf.TasksetConfig]):
    INFINITE = True

    def load(self):
        number = 0
        while True:
            yield GuessTask(Row(prompt=f"{number} + 3?", answer=str(number + 3)), self.config.task)
            number += 1


class GuessConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()


class GuessEnv(vf.Env[GuessConfig]):
    async def run(self, task, agents):
        async with agents.player.interaction(task) as interaction:
            said, turns = await interaction.turn(), 1
            while not said.terminated and said.last_reply != task.data.answer and turns < 3:
                said, turns = await interaction.turn("try again"), turns + 1
        interaction.trace.record_reward("won", float(said.last_reply == task.data.answer), 2.0)
        interaction.trace.record_metric("turns", turns)


__all__ = ["GuessEnv", "GuessTaskset"]
