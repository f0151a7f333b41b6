//! Teardown order.
