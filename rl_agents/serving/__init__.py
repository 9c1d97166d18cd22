"""Hosting a trained agent on Ray Serve: APIs for model calls, and sessions in which it acts in an environment.

    client -> HTTP proxy (Serve) -> Gateway -> Policy, Policy, ...
              limits of the body    keys,     an engine each; autoscaled,
                                    text and   in-place weights
                                    tokens,
                                    sessions

The gateway converts text to exact token ids and back, with the same `rl_agents.chat.template` as training, and runs
sessions with the agent loop of training. A policy replica takes tokens and returns tokens.
"""
