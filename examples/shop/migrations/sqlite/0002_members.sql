-- The hash; NULL until the address is confirmed.
ALTER TABLE users ADD COLUMN password TEXT;

ALTER TABLE users ADD COLUMN generation BIGINT NOT NULL DEFAULT 0;

CREATE TABLE pictures (
    id INTEGER PRIMARY KEY,
    user_id INTEGER NOT NULL REFERENCES users (id),
    title TEXT NOT NULL,
    content_type TEXT NOT NULL
);
