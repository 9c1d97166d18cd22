"""Chats: messages in one form, and the contexts that turn a dialogue into exact token ids."""
