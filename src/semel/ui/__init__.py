"""What a person sees: the commands, the console, the demo and their charts. Nothing else of semel stands on it."""
