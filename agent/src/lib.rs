//! Language-model work: tools and their errors.
