//! A model provider for tests.
