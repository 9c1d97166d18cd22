"""3SPO's search: what is known about states, which to branch at, what a step earns. Everything runs in the driver."""
