"""What surrounds a run: studies, tuning, sizing, doctor, serving, scaffolds, benches."""
