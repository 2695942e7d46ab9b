-- The hash; NULL until the address is confirmed.
ALTER TABLE users ADD COLUMN password VARCHAR(200);

ALTER TABLE users ADD COLUMN generation BIGINT NOT NULL DEFAULT 0;

CREATE TABLE pictures (
    id BIGINT AUTO_INCREMENT PRIMARY KEY,
    user_id BIGINT NOT NULL REFERENCES users (id),
    title VARCHAR(200) NOT NULL,
    content_type VARCHAR(40) NOT NULL
) CHARACTER SET utf8mb4;
