"""HTTP: what can be asked, by whom, and how it is answered."""
