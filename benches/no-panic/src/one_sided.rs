//! One-sided operations: bounds and parts, books of what is in flight.

use bareverbs_core::one_sided::{Accepted, Books, Limits, NotStarted, Operation, OperationId, Part, Plan, PlanRefused};
use bareverbs_core::verbs::inline_calls::Completion;
use bareverbs_core::view::{KeyedRange, RemoteView};

use crate::exported;

exported! {
    fn proof_plan_write(local: &KeyedRange, remote: &RemoteView, limits: &Limits) -> Result<Plan, PlanRefused> {
        Plan::new(Operation::Write, local, remote, limits)
    }

    fn proof_plan_any(
        operation: &Operation, local: &KeyedRange, remote: &RemoteView, limits: &Limits,
    ) -> Result<Plan, PlanRefused> {
        Plan::new(*operation, local, remote, limits)
    }

    fn proof_plan_part(plan: &Plan, n: u32) -> Option<Part> {
        plan.part(n)
    }

    fn proof_books_start(books: &mut Books<64>, parts: u32) -> Result<OperationId, NotStarted> {
        let start = books.start(parts)?;
        Ok(books.posted(start))
    }

    fn proof_books_start_odd(books: &mut Books<5>, parts: u32) -> Result<OperationId, NotStarted> {
        let start = books.start(parts)?;
        Ok(books.posted(start))
    }

    fn proof_books_receive(books: &mut Books<64>, ignored: usize) -> Option<u64> {
        let _ = ignored;
        let next = books.next_receive();
        books.receive_posted();
        next
    }

    fn proof_books_accept(books: &mut Books<64>, completion: &Completion<'_>) -> Accepted {
        books.accept(completion)
    }

    fn proof_books_accept_odd(books: &mut Books<5>, completion: &Completion<'_>) -> Accepted {
        books.accept(completion)
    }

    fn proof_books_tell_next(books: &mut Books<64>, ignored: usize) -> (Option<OperationId>, usize) {
        let _ = ignored;
        (books.tell_next(), books.pending().count())
    }
}
