"""A server that speaks OpenEnv's protocol and misbehaves as a reset's ``trick`` says.

python openenv_stub.py PORT [STEPS]: after so many steps it ends at once, as if it were killed.
"""

import asyncio
import json
import os
import sys

from websockets.asyncio.server import serve
from websockets.datastructures import Headers
from websockets.http11 import Response

SAID = {"said": {"type": "string", "maxLength": 500}}
SCHEMA = {
    "action": {"title": "Talk", "properties": SAID, "required": ["said"], "additionalProperties": False},
    "observation": {"properties": {"text": {"type": "string"}, "secret": {"type": "string"}}},
}
TRICKS = {
    "garbage": [1],
    "no_reward": {"type": "observation", "data": {"observation": {}, "reward": "much"}},
    "raise": {"type": "error", "data": {"message": "no such file", "code": "EXECUTION_ERROR"}},
    "refuse": {"type": "error", "data": {"message": "Invalid message", "code": "VALIDATION_ERROR", "errors": [
        {"loc": ["said"], "msg": "too rude"}]}},
}  # fmt: skip
steps = 0


def page(connection, request):
    """Answer what is no WebSocket's."""
    known = request.headers.get("Authorization", "Bearer right") == "Bearer right"
    if request.path != "/ws" or not known:
        body = json.dumps(SCHEMA if known else {}).encode()
        return Response(200 if known else 401, "", Headers({"Content-Length": str(len(body))}), body)
    return None


def observed(text, reward=None, done=False):
    observation = {"text": text, "secret": "7"}
    return {"type": "observation", "data": {"observation": observation, "reward": reward, "done": done}}


async def session(socket):
    global steps
    trick, said = "", 0
    async for message in socket:
        asked = json.loads(message)
        if asked["type"] == "reset":
            trick, said, seed = asked["data"].get("trick", ""), 0, asked["data"]["seed"]
            if trick == "full":
                await socket.send(
                    json.dumps({"type": "error", "data": {"code": "CAPACITY_REACHED", "message": "full"}})
                )
                return
            await socket.send(json.dumps(observed(f"talk about {seed}")))
            continue
        steps += 1
        if steps == int((sys.argv[2:] or [0])[0]):
            os._exit(9)
        if trick == "hang":
            continue
        said += 1
        size = len(asked["data"]["said"])
        reply = observed(f"{size} characters", min(size, 10) / 10, said == 3)
        await socket.send(json.dumps(TRICKS.get(trick) or reply))


async def main():
    async with serve(session, "127.0.0.1", int(sys.argv[1]), process_request=page):
        print("ready", flush=True)
        await asyncio.Future()


asyncio.run(main())
