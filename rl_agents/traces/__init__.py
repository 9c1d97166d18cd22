"""Expert traces: files in public formats, and their turns."""
