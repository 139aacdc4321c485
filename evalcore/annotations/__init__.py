"""ANNOTATIONS: labels that people give to outputs, and what is still to be labelled.

Public: `label_store` (`labels_of`, `add_label`, `withdraw_label`), `judging` (`judged`), `queue`
(`awaiting`), `exchange` (import and export), `reliability` (agreement of annotators).
"""
