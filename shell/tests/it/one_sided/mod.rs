//! Queue pairs for one-sided operations on the software fabric: what needs its record, its plan of failures, or its exchange.

mod abandoned;
mod asleep;
mod faults;
mod forked;
mod late;
mod meeting;
mod posting;
mod refused_posts;
mod threads;
mod two_fabrics;
mod waits;
mod whose;
