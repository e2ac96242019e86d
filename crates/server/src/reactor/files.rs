//! Reads of exports' files that are not in memory: workers of the ring wait for the disk.

use diskside_compute::Answers;
use diskside_io::ring::{Completion, Payload};

use super::connection::Connection;
use super::core::Core;
use super::file_reads::Reading;
use super::token::Token;

impl Connection {
    /// Starts the reads of files that commands have asked for.
    pub(super) fn start_file_reads(&mut self, core: &mut Core) {
        while let Some(read) = self.function.next_file_read() {
            self.tasks += 1;
            let export = core.files.add(self.id, self.input_of(), read);
            core.read_files(export);
        }
    }

    /// An operation of a read has ended.
    pub(super) fn file_was_read(&mut self, core: &mut Core, key: usize, completion: Completion) {
        core.media_in_flight -= 1;
        core.media_ended = true;
        let buffer = if let Payload::Buffer(buffer) = completion.payload { Some(buffer) } else { None };
        let reading = &mut core.files.reads[key];
        if !reading.read.completed(completion.result, buffer) {
            return core.push_file_read(key);
        }
        let Reading { export, read, .. } = core.files.remove(key);
        self.tasks -= 1;
        self.answer_file(core, read);
        core.read_files(export);
        self.mark_dirty(core);
    }

    /// The connection is gone: reads that wait for a worker are not begun.
    pub(super) fn forget_file_reads(&mut self, core: &mut Core) {
        for reading in core.files.take_out(self.id) {
            self.tasks -= 1;
            reading.read.answer(&mut Answers::default());
        }
    }
}

impl Core {
    /// Begins the reads of an export for which there are workers.
    fn read_files(&mut self, export: usize) {
        while let Some(key) = self.files.next(export) {
            self.push_file_read(key);
        }
    }

    fn push_file_read(&mut self, key: usize) {
        let op = self.files.reads[key].read.operation();
        self.ring.push_to_worker(Token::File(key).bits(), op);
        self.media_in_flight += 1;
        self.media_waits = true;
    }
}
