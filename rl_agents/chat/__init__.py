"""Chats: messages in one form, and contexts that convert a dialogue to exact token ids."""
