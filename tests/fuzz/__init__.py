"""Coverage-guided fuzzing of everything that reads bytes of clients, peers, users or disks."""
