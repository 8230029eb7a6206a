"""What every program runs on: rounds, health, logs, metrics, clocks."""
