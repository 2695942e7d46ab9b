lost <?php ob_start();
throw new DomainException("in a view");
