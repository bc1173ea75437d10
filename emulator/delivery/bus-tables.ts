/** Tables of the embedded bus, and its query of due messages. */

export const schema = `
  CREATE TABLE IF NOT EXISTS bus_messages (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, topic TEXT NOT NULL, message TEXT NOT NULL,
    published_at TEXT NOT NULL, due_at INTEGER NOT NULL, attempts INTEGER NOT NULL DEFAULT 0) STRICT;
  CREATE INDEX IF NOT EXISTS bus_messages_due ON bus_messages (due_at, seq);
  CREATE INDEX IF NOT EXISTS bus_messages_of_topic ON bus_messages (topic, due_at, seq);
  CREATE TABLE IF NOT EXISTS bus_dead_letters (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL, topic TEXT NOT NULL, message TEXT NOT NULL, published_at TEXT NOT NULL,
    attempts INTEGER NOT NULL, last_error TEXT NOT NULL, died_at TEXT NOT NULL) STRICT;
`;

/** The first due messages of every topic. The topics are read from the index one by one, however many messages there are. */
export const firstDue = `
  WITH RECURSIVE topics (topic) AS (
    SELECT min(topic) FROM bus_messages
    UNION ALL SELECT (SELECT min(topic) FROM bus_messages WHERE topic > topics.topic) FROM topics WHERE topic IS NOT NULL)
  SELECT message.* FROM topics JOIN bus_messages AS message ON message.seq IN (
    SELECT seq FROM bus_messages WHERE topic = topics.topic AND due_at <= ? ORDER BY due_at, seq LIMIT ?)
  ORDER BY message.due_at, message.seq`;
