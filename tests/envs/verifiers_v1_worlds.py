"""A v1 task set of verifiers for test_verifiers.py, and the library's own runner of scripted answers.

    PYTHONPATH=tests/envs PYTHON verifiers_v1_worlds.py '[[kind, row, [[answer, ...], ...]], ...]'

uv must be on the PATH. An answer is a text or [[tool, arguments], ...]. It prints (reward, metrics) of every episode.
"""

import asyncio
import http.server
import json
import sys
import threading

import verifiers.v1 as vf
from verifiers.v1.utils import loaders


class Tools(vf.Toolset[vf.SharedToolsetConfig, vf.State]):
    @vf.tool
    async def add(self, a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)


class SumsConfig(vf.TasksetConfig):
    count: int = 6


class SumsData(vf.TaskData):
    answer: str = ""


class SumsTask(vf.Task[SumsData, vf.State, vf.TaskConfig]):
    @vf.reward(weight=1.0)
    async def right(self, trace) -> float:
        if trace.last_reply == "crash":
            return {}["no such key"]
        return float(trace.last_reply.strip() == self.data.answer)

    @vf.reward(weight=0.5)
    async def short(self, trace) -> float:
        return 1 / (1 + len(trace.last_reply))

    @vf.metric
    async def turns(self, trace) -> float:
        return float(trace.num_turns)


class SumsTaskset(vf.Taskset[SumsTask, SumsConfig]):
    def load(self):
        for number in range(self.config.count):
            data = SumsData(prompt=f"{number} + 3?", answer=str(number + 3))
            yield SumsTask(data, self.config.task)

    @classmethod
    def toolsets(cls, config):
        return [Tools(vf.SharedToolsetConfig())]


__all__ = ["SumsTaskset"]


def serve(script):
    answers = iter(script)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            answer, calls = next(answers), []
            if isinstance(answer, list):
                given = [{"name": name, "arguments": json.dumps(arguments)} for name, arguments in answer]
                calls = [
                    {"index": n, "id": f"call-{n}", "type": "function", "function": f} for n, f in enumerate(given)
                ]
                answer = None
            delta = {"role": "assistant", "content": answer, **({"tool_calls": calls} if calls else {})}
            ends = "tool_calls" if calls else "stop"
            base = {"id": "x", "created": 1, "model": "m", "object": "chat.completion.chunk"}
            parts = [{"delta": delta, "finish_reason": None}, {"delta": {}, "finish_reason": ends}]
            lines = [json.dumps({**base, "choices": [{"index": 0, **part}]}) for part in parts]
            sent = "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/v1"


async def main(cases):
    seat, told = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}, []
    for kind, row, scripts in cases:
        where = {"taskset": {"id": f"verifiers_v1_{kind}"}, "player" if kind == "guess" else "agent": seat}
        env = loaders.load_environment(loaders.resolve_env_config(where))
        tasks = list(env.taskset.take(row + 1))
        told.append([])
        async with env.serving():
            for script in scripts:
                endpoint = vf.EvalClientConfig(base_url=serve(script), api_key_var="NONE")
                episode = await env.run_episode(tasks[row], vf.ModelContext(model="m", client=endpoint))
                (trace,) = episode.traces
                assert episode.ok, trace.errors
                scores = {name: reward.score for name, reward in trace.rewards.items()}
                told[-1].append([trace.reward, scores | trace.metrics])
    print(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1]))) if sys.argv[1:] else Tools.run()
