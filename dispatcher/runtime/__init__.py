"""Parts that every program uses: rounds, health, logs, metrics, clocks."""
