"""What every attack needs: clients, an origin, the servers under attack, and the report. `../run.py` is the entry point."""
