"""Hosting a trained agent on Ray Serve: OpenAI's chat API, and sessions in which it acts in an environment.

    client -> HTTP proxy (Serve) -> Gateway -> Policy, Policy, ...
              limits of the body    keys,     an engine each; autoscaled,
                                    text and   in-place weights
                                    tokens,
                                    sessions

The gateway turns text into exact token ids and back, with the chat template's code of `rl_agents.chat.template`, and
plays sessions with the agent loop of training. A policy replica takes tokens and returns tokens.
"""
