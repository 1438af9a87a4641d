"""How a child capsule is launched and what is made of its end, without I/O: what to hand it, what to believe of it."""
