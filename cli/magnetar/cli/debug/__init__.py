"""`magnetar debug`: what an operator sends along with a question."""
