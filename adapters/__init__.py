"""What touches the world, one module a port and platform: files, processes, doors, time."""
