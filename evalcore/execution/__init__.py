"""EXECUTE: a work item becomes evidence, assertion results and a row."""
