"""moed beside llama.cpp: the same checkpoint, machine, texts, memory limit and disk."""
