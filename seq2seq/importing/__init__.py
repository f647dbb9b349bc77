"""Import of models that were trained with Marian, from Hugging Face's folders or Marian's own."""
