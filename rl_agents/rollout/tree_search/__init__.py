"""Tree search over states (3spo): which states to branch at. It runs in the driver."""
