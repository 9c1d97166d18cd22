"""How weights get from the learner into vLLM: its own init, start, update and finish, whatever carries the tensors."""
