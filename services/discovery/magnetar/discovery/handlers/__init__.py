"""Discovery's answers to commands: no socket, no task of its own."""
