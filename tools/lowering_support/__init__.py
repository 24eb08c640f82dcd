"""Makes the table of operators that lower, which the compiler package ships."""
