"""Judges an installation: from facts to findings. All pure. `programs/doctor/` reads the facts."""
