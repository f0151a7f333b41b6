//! One end of a conversation.
