CREATE TABLE users (
    id BIGINT AUTO_INCREMENT PRIMARY KEY,
    name VARCHAR(100) NOT NULL,
    email VARCHAR(200) NOT NULL UNIQUE
) CHARACTER SET utf8mb4;

CREATE TABLE products (
    id BIGINT AUTO_INCREMENT PRIMARY KEY,
    name VARCHAR(100) NOT NULL,
    price_cents BIGINT NOT NULL,
    stock BIGINT NOT NULL CHECK (stock >= 0)
) CHARACTER SET utf8mb4;

CREATE TABLE orders (
    id BIGINT AUTO_INCREMENT PRIMARY KEY,
    user_id BIGINT NOT NULL REFERENCES users (id),
    total_cents BIGINT NOT NULL,
    placed_at BIGINT NOT NULL,
    INDEX orders_of_user (user_id, id)
);

CREATE TABLE order_lines (
    order_id BIGINT NOT NULL REFERENCES orders (id),
    product_id BIGINT NOT NULL REFERENCES products (id),
    quantity BIGINT NOT NULL,
    price_cents BIGINT NOT NULL,
    PRIMARY KEY (order_id, product_id)
);
