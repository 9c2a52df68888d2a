//! What a query text asks for.
