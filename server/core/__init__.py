"""The data path: sinks, outboxes, the subject trie, the router, clients, accounts."""
