"""What writes the generated parts of the documentation: reference pages, examples, the picture of a URI."""
