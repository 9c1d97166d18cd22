"""What servers share: errors in OpenAI's form, keys, checks of origin and size, text that streams."""
