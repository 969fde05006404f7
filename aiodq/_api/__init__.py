"""What users hold: queues, tasks, jobs, workers. Wires the rooms, decides nothing."""
