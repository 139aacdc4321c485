"""The whole program through its shell: real processes, real files, real stores."""
