"""The loop-nest intermediate representation; nothing here imports a third-party package."""
