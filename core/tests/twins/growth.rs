//! Growth, slow and obvious.

use bareverbs_core::segments::WindowLimits;

/// The rules of growth in their obvious form, over lists of part lengths, where windows can grow in place.
pub struct Twin {
    unit: u64,
    max: u64,
    cap: u64,
    window_bytes: u64,
    windows: Vec<Vec<u64>>,
}

impl Twin {
    /// Nothing is bound yet.
    pub fn new(limits: WindowLimits) -> Self {
        Self {
            unit: u64::from(limits.chunk().alignment().bytes()),
            max: u64::from(limits.chunk().max_bytes()),
            cap: u64::from(limits.cap().entries()),
            window_bytes: limits.window_bytes(),
            windows: Vec::new(),
        }
    }

    /// The lengths of each window's parts; `None` where keys have too few entries to grow in place, since whole windows are
    /// merged then.
    pub fn windows(&self) -> Option<&[Vec<u64>]> {
        (self.cap > self.levels()).then_some(&self.windows)
    }

    fn level(&self, len: u64) -> u32 {
        (0..64).rev().find(|level| (len / self.unit) >> level > 0).unwrap()
    }

    fn levels(&self) -> u64 {
        u64::from(self.level(self.max)) + 1
    }

    /// The segment grows by so much.
    pub fn grow(&mut self, mut tail: u64) {
        let levels = self.levels();
        if let Some(last) = self.windows.last().cloned() {
            let len: u64 = last.iter().sum();
            let to_spare = self.cap.saturating_sub(len.div_ceil(self.max));
            if to_spare >= levels && len < self.window_bytes {
                // Its last cell may need one entry per level.
                let end = ((self.cap - levels + 1) * self.max).min(self.window_bytes).min(len + tail);
                tail -= end - len;
                let mut parts = last;
                let mut at = len;
                while at < end {
                    let part = (end - at).min(self.max - at % self.max);
                    parts.push(part);
                    at += part;
                }
                let budget = self.cap.min(end.div_ceil(self.max) + levels);
                if parts.len() as u64 > budget {
                    parts = self.merged(&parts);
                }
                *self.windows.last_mut().unwrap() = parts;
            }
        }
        while tail > 0 {
            let mut parts = Vec::new();
            let end = self.window_bytes.min(tail);
            let mut at = 0;
            while at < end {
                parts.push((end - at).min(self.max));
                at += parts.last().unwrap();
            }
            self.windows.push(parts);
            tail -= end;
        }
    }

    /// Each part is put on the counter in turn; the last two become one while that carries.
    fn merged(&self, parts: &[u64]) -> Vec<u64> {
        let mut counter: Vec<u64> = Vec::new();
        for &part in parts {
            counter.push(part);
            loop {
                let end: u64 = counter.iter().sum();
                let [.., lower, upper] = counter[..] else { break };
                let cell_of = |byte: u64| byte / self.max;
                let one_cell = cell_of(end - lower - upper) == cell_of(end - 1);
                if !one_cell || (self.level(lower) > self.level(upper) && !end.is_multiple_of(self.max)) {
                    break;
                }
                counter.pop();
                *counter.last_mut().unwrap() += upper;
            }
        }
        counter
    }
}
