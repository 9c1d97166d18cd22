"""Expert traces: files in the public formats, and the turns that they hold."""
