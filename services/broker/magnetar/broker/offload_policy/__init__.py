"""The offload policy of a topic: whether, when and to which location its ledgers are offloaded."""
